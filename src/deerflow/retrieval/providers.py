"""The embedding model that the settings select."""

from deerflow.config.embeddings import EmbeddingSettings
from deerflow.retrieval.embeddings import EmbeddingModel, default_embeddings
from deerflow.retrieval.use import UseEmbeddings


def create_embeddings(settings: EmbeddingSettings) -> EmbeddingModel | None:
    """Return the selected model, not loaded yet; None to find by words alone."""
    match settings.provider:
        case "static":
            return default_embeddings()
        case "use":
            return UseEmbeddings.installed()
        case "openai" | "ollama":
            from deerflow.retrieval.services import service_embeddings  # noqa: PLC0415 - loads an HTTP client

            return service_embeddings(settings)
        case "none":
            return None
