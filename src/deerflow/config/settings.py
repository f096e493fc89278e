"""All settings of one DeerFlow, as one frozen value."""

from pydantic import Field

from deerflow.config.models import ModelSettings
from deerflow.config.rooms import DatabaseSettings, SubagentsSettings, TitleSettings, UploadSettings
from deerflow.config.sandbox import SandboxSettings
from deerflow.config.section import Section


class Settings(Section):
    """What `config.yaml` says, with a default for everything it does not say."""

    log_level: str = Field("info", description="How much is logged: debug, info, warning or error.")
    max_recursion_limit: int = Field(1000, ge=1, description="The most graph steps a client may ask for.")
    models: tuple[ModelSettings, ...] = Field((), description="Chat models; the first is the default.")
    sandbox: SandboxSettings = Field(SandboxSettings(), description="Where commands run.")
    database: DatabaseSettings = Field(DatabaseSettings(), description="Where everything is kept.")
    uploads: UploadSettings = Field(UploadSettings(), description="How much may be uploaded.")
    title: TitleSettings = Field(TitleSettings(), description="How threads get titles.")
    subagents: SubagentsSettings = Field(SubagentsSettings(), description="How work is delegated.")
