"""What a run left behind, told: a page of text, a page for a browser, a trace, spans for OpenTelemetry."""
