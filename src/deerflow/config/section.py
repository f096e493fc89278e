"""Base classes of all settings sections."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, ClassVar, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.fields import FieldInfo
from typing_extensions import override

from deerflow.config.secrets import masked
from deerflow.config.yaml_file import KeyPath


class Section(BaseModel):
    """A frozen part of the settings; unknown keys are kept and reported in one warning."""

    # Validators are built on first use: most commands need few. Defaults are therefore written as
    # `X.model_construct()`, which needs no validator.
    model_config = ConfigDict(
        defer_build=True,
        frozen=True,
        extra="allow",
        protected_namespaces=(),
        populate_by_name=True,
        coerce_numbers_to_str=True,
        allow_inf_nan=False,
    )

    passes_extra_keys: ClassVar[bool] = False
    """True if unknown keys are passed to the class or tool that the section names."""

    @model_validator(mode="before")
    @classmethod
    def _empty_keys_mean_their_default(cls, data: Any) -> Any:
        """Drop empty keys, so that `memory:` alone is a section of defaults."""
        if not isinstance(data, Mapping) or None not in data.values():
            return data
        needed = {name for name, field in cls.model_fields.items() if not _takes_none(field)}
        needed |= {cls.model_fields[name].alias or name for name in needed}
        return {key: value for key, value in data.items() if value is not None or key not in needed}

    @override
    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """Mask secrets in logs and tracebacks that show a section."""
        return [(name, masked(name or "", value)) for name, value in super().__repr_args__()]


class OpenSection(Section):
    """A section whose unknown keys are passed on to a class, a tool or a server."""

    passes_extra_keys: ClassVar[bool] = True

    @property
    def extra_keys(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


def section(kind: type[Section], description: str = "") -> Any:
    """Return the field of a nested section; it is described by the section's docstring by default."""
    return Field(kind.model_construct(), description=description or kind.__doc__)


def _takes_none(field: FieldInfo) -> bool:
    return type(None) in get_args(field.annotation)


def unused_paths(section: Section, waiting: Collection[str] = (), prefix: KeyPath = ()) -> Iterator[KeyPath]:
    """Yield the paths of all keys set below `section` that are unknown or unused.

    Args:
        waiting: Dotted names of known keys without effect; `[]` matches any entry of a list.

    """
    yield from ((*prefix, name) for name in section.model_extra or {})
    for name in type(section).model_fields:
        if name in section.model_fields_set:
            yield from _unused_in(getattr(section, name), waiting, (*prefix, name))


def _unused_in(value: object, waiting: Collection[str], path: KeyPath) -> Iterator[KeyPath]:
    if is_listed(path, waiting):
        yield path
        return
    match value:
        case Section():
            yield from unused_paths(value, waiting, path)
        case tuple():
            for index, item in enumerate(value):
                yield from _unused_in(item, waiting, (*path, index))
        case dict():
            for key, item in value.items():
                yield from _unused_in(item, waiting, (*path, key))


def is_listed(path: KeyPath, names: Collection[str]) -> bool:
    """Return whether `path` is among dotted names, in which `[]` matches any entry of a list."""
    return "".join("[]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".") in names
