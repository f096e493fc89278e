"""Settings of the embedding model."""

from typing import Literal, Self

from pydantic import Field, model_validator

from deerflow.config.section import Section

Provider = Literal["static", "openai", "ollama", "use", "none"]


class EmbeddingSettings(Section):
    """The model that finds memories and documents by meaning. Needs a restart."""

    provider: Provider = Field(
        "static",
        description="`static`: a small multilingual model that is part of the installation. `use`: a better "
        "one of 72 MB, installed by `deerflow install embeddings`; slower, and needs about 300 MB of memory. "
        "`openai`: any server with OpenAI's `/v1/embeddings`. `ollama`: a local Ollama. `none`: find by "
        "words alone. After a change everything is embedded anew in the background; until then the earlier "
        "vectors answer.",
    )
    model: str | None = Field(
        None, description="With `openai` and `ollama`: the model's name, such as `text-embedding-3-small`."
    )
    base_url: str | None = Field(
        None,
        pattern=r"^https?://",
        description="With `openai` and `ollama`: base URL of the API. Absent: `https://api.openai.com/v1` "
        "or `http://127.0.0.1:11434`.",
    )
    api_key: str | None = Field(None, description="With `openai`: API key, such as `$OPENAI_API_KEY`.")
    dimensions: int | None = Field(
        None, ge=8, le=8192, description="With `openai`: length of the vectors. Absent: the model's default."
    )
    timeout_seconds: float = Field(
        30, gt=0, le=600, description="With `openai` and `ollama`: how long one request may take."
    )

    @model_validator(mode="after")
    def _services_need_a_model(self) -> Self:
        if self.provider in ("openai", "ollama") and not self.model:
            raise ValueError(
                f"embeddings.provider '{self.provider}' needs embeddings.model, the name of the model"
            )
        return self
