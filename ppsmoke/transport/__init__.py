"""Links between processes over iroh QUIC: endpoint, frames, handshake, heartbeats, mesh."""
