"""What every section of the settings has in common."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A frozen part of the settings; keys it does not know are kept and named in one warning."""

    model_config = ConfigDict(frozen=True, extra="allow", protected_namespaces=())
