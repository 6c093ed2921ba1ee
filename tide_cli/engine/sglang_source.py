"""SGLang's source, read without importing it: names, parameters, attributes, and what a function says. No torch.

Names are dotted, as in hook_points. `from … import` is followed inside the package, a class's bases too.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

from tide_cli.errors import TideError, UsageError, reason


class Place(NamedTuple):
    """A definition: the module it stands in, and its node of ast."""

    module: str
    node: Any


class SglangSource:
    """One SGLang. package: the folder `sglang` with its modules, installed or unpacked from a wheel."""

    def __init__(self, package: Path) -> None:
        self.package = package

    @classmethod
    def installed(cls) -> SglangSource:
        """Raises TideError where no SGLang is installed."""
        spec = importlib.util.find_spec("sglang")
        if spec is None or not spec.submodule_search_locations:
            raise TideError("SGLang is not installed", remedy="./install.sh")
        return cls(Path(next(iter(spec.submodule_search_locations))))

    @classmethod
    def below(cls, folder: Path) -> SglangSource:
        """The one in `folder`, or in its `sglang`. Raises UsageError where neither holds one."""
        for package in (folder, folder / "sglang"):
            if (package / "srt" / "server_args.py").is_file():
                return cls(package)
        raise UsageError(f"there is no SGLang in {folder}", remedy="name the folder that holds `sglang/srt`")

    @cached_property
    def version(self) -> str:
        """'?' where the sources do not say."""
        file = self.package / "_version.py"
        found = (
            re.search(r"^__version__ = .*?['\"]([^'\"]+)", file.read_text(errors="replace"), re.MULTILINE)
            if file.is_file()
            else None
        )
        return found[1] if found else "?"

    def resolve(self, name: str) -> object:
        """As pkgutil.resolve_name, for hook_points.problems: a stand-in with the signature of `name`.

        Raises AttributeError where there is no such name.
        """
        node = self.find(name).node
        return _Signed(node) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else node

    def find(self, name: str) -> Place:
        """The definition behind a dotted name; a module for the name of one. Raises AttributeError."""
        parts = name.split(".")
        for count in range(len(parts), 0, -1):
            module = ".".join(parts[:count])
            if self._file(module) is not None:
                place = Place(module, self._tree(module))
                for part in parts[count:]:
                    place = self._member(place, part)
                return place
        raise AttributeError(f"no module {name!r}")

    def text(self, name: str) -> str:
        """A definition in one spelling, without comments: see ast.unparse. A module as it stands. AttributeError."""
        place = self.find(name)
        return self._path(place.module).read_text() if isinstance(place.node, ast.Module) else ast.unparse(place.node)

    def attributes(self, name: str) -> set[str]:
        """What objects of a class have: fields, methods, and what its methods set; its bases' too. AttributeError."""
        place = self.find(name)
        if not isinstance(place.node, ast.ClassDef):
            raise AttributeError(f"{name} is not a class")
        return {attribute for one in self._family(place) for attribute in _own_attributes(one.node)}

    def strings(self, folder: str) -> Iterator[str]:
        """Every string constant of a module or of all modules of a package; none where it is gone."""
        for file in _files(self.package.parent / Path(*folder.split("."))):
            yield from string_constants(file.resolve())

    # ------------------------------------------------------------ inside

    def _file(self, module: str) -> Path | None:
        path = self.package.parent / Path(*module.split("."))
        candidates = (path.with_suffix(".py"), path / "__init__.py")
        return next((file for file in candidates if file.is_file()), None)

    def _path(self, module: str) -> Path:
        if (file := self._file(module)) is None:
            raise AttributeError(f"no module {module!r}")
        return file

    def _tree(self, module: str) -> ast.Module:
        return parsed(self._path(module).resolve())

    def _member(self, place: Place, name: str) -> Place:
        for one in self._family(place) if isinstance(place.node, ast.ClassDef) else [place]:
            if (found := self._own_member(one, name)) is not None:
                return found
        raise AttributeError(f"no {name!r} in {place.module}")

    def _own_member(self, place: Place, name: str) -> Place | None:
        """A definition wins over an import: modules import each other's names for annotations."""
        imports = []
        for node in _statements(place.node.body):
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() if node.name == name:
                    return Place(place.module, node)
                case ast.Assign() if name in (getattr(target, "id", None) for target in node.targets):
                    return Place(place.module, node)
                case ast.AnnAssign(target=ast.Name(id=target)) if target == name:
                    return Place(place.module, node)
                case ast.ImportFrom():
                    imports.append(node)
        for node in imports:
            module = self._imported_from(place.module, node)
            inside = self._file(module) is not None and module != place.module
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return self.find(f"{module}.{alias.name}") if inside else Place(place.module, node)
                starred = Place(module, self._tree(module)) if alias.name == "*" and inside else None
                if starred and (found := self._own_member(starred, name)) is not None:
                    return found
        return None

    def _imported_from(self, module: str, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parents = module.split(".")
        file = self._file(module)
        up = node.level - (file is not None and file.name == "__init__.py")
        return ".".join([*parents[: len(parents) - up], *([node.module] if node.module else [])])

    def _family(self, place: Place) -> list[Place]:
        """A class and its bases, as far as they are named and stand in the package."""
        found = [place]
        for base in place.node.bases:
            if isinstance(base, ast.Name):
                below = self._own_member(Place(place.module, self._tree(place.module)), base.id)
                if below is not None and isinstance(below.node, ast.ClassDef):
                    found += self._family(below)
        return found


class _Signed:
    """Has the signature of a function that is only read, for inspect.signature."""

    def __init__(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        kind = inspect.Parameter
        given = node.args
        parameters = [
            *(kind(arg.arg, kind.POSITIONAL_ONLY) for arg in given.posonlyargs),
            *(kind(arg.arg, kind.POSITIONAL_OR_KEYWORD) for arg in given.args),
            *([kind(given.vararg.arg, kind.VAR_POSITIONAL)] if given.vararg else []),
            *(kind(arg.arg, kind.KEYWORD_ONLY) for arg in given.kwonlyargs),
            *([kind(given.kwarg.arg, kind.VAR_KEYWORD)] if given.kwarg else []),
        ]
        self.__signature__ = inspect.Signature(parameters)

    def __call__(self) -> None:
        raise NotImplementedError


@cache
def string_constants(file: Path) -> tuple[str, ...]:
    """Every string constant of a Python file, the parts of f-strings and the docstrings included."""
    return tuple(
        node.value for node in ast.walk(parsed(file)) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


@cache
def parsed(file: Path) -> ast.Module:
    """The tree of a Python file. Raises TideError where it cannot be read."""
    try:
        return ast.parse(file.read_text())
    except (OSError, SyntaxError, ValueError, RecursionError) as error:
        raise TideError(f"cannot read {file}", why=reason(error)) from None


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(path.rglob("*.py"))
    file = path.with_suffix(".py")
    return [file] if file.is_file() else []


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module or class, those under `if`, `try` and `with` included."""
    for node in body:
        yield node
        for inner in ("body", "orelse", "handlers", "finalbody"):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield from _statements(getattr(node, inner, []))


def _own_attributes(node: ast.ClassDef) -> Iterator[str]:
    for statement in _statements(node.body):
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield statement.name
                yield from _set_on_self(statement)
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Assign():
                yield from (target.id for target in statement.targets if isinstance(target, ast.Name))


def _set_on_self(function: ast.AST) -> Iterator[str]:
    for node in ast.walk(function):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name
