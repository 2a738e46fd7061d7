"""What the host code of an exported function can reach, and whether any of it may take GPU memory."""

from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from pathlib import Path

from runtime.ghost.inside.sources import known
from runtime.ghost.inside.sources.build_file import Build
from runtime.ghost.inside.sources.macros import LONG, bound, fits, pasted, pieces
from runtime.ghost.inside.sources.names import bases, declared, qualified
from runtime.ghost.inside.sources.parts import Part, Parts
from runtime.ghost.inside.sources.scope import parts_of
from runtime.ghost.inside.sources.text import Token, read

Where = tuple[Path, int]


class Unsure(Exception):
    """The reason why a source gives no verdict."""

    def __init__(self, why: str, where: Where | None = None) -> None:
        super().__init__(f"{why}: {where[0].name}:{where[1]}" if where else why)


@lru_cache(maxsize=2048)
def _parts(file: Path) -> Parts:
    return parts_of(read(file))


def forget_files() -> None:
    """Drop everything that was read."""
    _parts.cache_clear()
    read.cache_clear()


class Source:
    """Every file that a module is made of, except those of C++, CUDA and its libraries."""

    def __init__(self, build: Build) -> None:
        self.build = build
        self.files: list[Path] = []
        self._read(build.sources)
        self.named: dict[str, list[Part]] = {}
        self.exports: dict[str, Part] = {}
        self.spaces: set[str] = set()
        self.renamed: dict[str, list[str]] = {}
        self.at_load: list[Part] = []
        self._declared: dict[int, frozenset[str]] = {}
        for file in self.files:
            found = _parts(file)
            self.exports.update(found.exports)
            self.spaces |= found.namespaces
            self.renamed.update(found.renamed)
            self.at_load += found.at_load
            for part in found.parts:
                self.named.setdefault(part.name, []).append(part)

    def _read(self, sources: Iterable[Path]) -> None:
        """Read every file, and whether it is surely compiled; all includes of such a file must be found."""
        waiting = [(file, True) for file in sources]
        sure: dict[Path, bool] = {}
        while waiting:
            file, is_sure = waiting.pop()
            if file in sure and sure[file] >= is_sure:
                continue
            if file not in sure:
                self.files.append(file)
            sure[file] = is_sure
            try:
                text = read(file)
            except (OSError, UnicodeDecodeError) as error:
                raise Unsure(f"its source cannot be read: {file.name}") from error
            for one in text.includes:
                found = self._found(file, one.name, one.quoted)
                is_compiled = is_sure and not one.is_conditional
                if found is not None:
                    waiting.append((found, is_compiled))
                elif (
                    is_compiled
                    and not _is_outside(one.name)
                    and (one.quoted or not known.SYSTEM_C.match(one.name))
                ):
                    raise Unsure(f"its source includes {one.name}, which is not there", (file, one.line))

    def _found(self, file: Path, name: str, quoted: bool) -> Path | None:
        """Return a header of the release's own, or None for one of C++, CUDA, a library, or none."""
        if quoted and (file.parent / name).is_file():
            return (file.parent / name).resolve()
        if _is_outside(name):
            return None
        found = (folder / name for folder in self.build.folders if (folder / name).is_file())
        return next((one.resolve() for one in found), None)

    def declared_in(self, part: Part) -> frozenset[str]:
        found = self._declared.get(id(part))
        if found is None:
            names = declared(part.tokens)
            if part.kind == "class":
                names |= bases(part.tokens)
            found = self._declared[id(part)] = frozenset(names)
        return found

    def makers(self, name: str) -> list[Part]:
        """Return the macros that may have made this name of pieces."""
        return [part for part, words in self._pasting if fits(name, words)]

    @cached_property
    def _pasting(self) -> list[tuple[Part, list[str]]]:
        macros = [part for parts in self.named.values() for part in parts if part.kind == "macro"]
        found = [(one, pieces(one, at)) for one in macros for at in pasted(one.tokens)]
        return [(one, words) for one, words in found if max(map(len, words)) >= LONG]

    @cached_property
    def device_words(self) -> tuple[frozenset[str], frozenset[str]]:
        """Return the macros that mean __device__, and those that mean __host__."""
        marks = []
        for mark in (("__device__", "__global__"), ("__host__",)):
            words, before = set(mark), -1
            while before != len(words):
                before = len(words)
                for name, parts in self.named.items():
                    for part in parts:
                        if part.kind == "macro" and any(one.text in words for one in part.tokens):
                            words.add(name)
            marks.append(frozenset(words))
        return marks[0], marks[1]

    def is_device(self, part: Part) -> bool:
        """Whether a function is only GPU code."""
        device, host = self.device_words
        words = {one.text for one in (*part.before, *part.after)}
        return part.kind in ("function", "declared") and bool(words & device) and not words & host


def _is_outside(name: str) -> bool:
    return name.split("/")[0] in known.OUTSIDE or known.SYSTEM.match(name) is not None


class Reach:
    """Follows names from a function to everything that they may mean."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._done: set[int] = set()
        self._locals: set[str] = set()
        self._open: list[tuple[str, Where]] = []  # names in macros, which may be their callers'

    def follow(self, export: Part) -> None:
        """Raise Unsure if the function may take memory, or if that is not certain."""
        waiting = [export, *self.source.at_load]
        waiting += self.source.named.get("", [])
        while waiting:
            part = waiting.pop()
            if id(part) in self._done or self.source.is_device(part):
                continue
            self._done.add(id(part))
            waiting += self._from(part)
        for name, where in self._open:
            if name not in self._locals:
                raise Unsure(f"its source names {name}, of which nothing is known", where)

    def _from(self, part: Part) -> list[Part]:
        if part.kind == "declared":
            return self._defined(part)
        names = self._names_around(part)
        self._locals |= names
        reached: list[Part] = []
        for at, one in enumerate(part.tokens):
            if one.kind == "string":
                self._string(part, one)
            elif one.text == "##":
                reached += self._pasted(part, at)
            elif one.kind == "name" and "##" not in [
                near.text for near in part.tokens[max(0, at - 1) : at + 2]
            ]:
                reached += self._name(part, at, names)
        return reached

    def _pasted(self, part: Part, at: int) -> list[Part]:
        """Return every definition that a name pasted by a macro may mean, by its known pieces."""
        if at > 1 and part.tokens[at - 2].text == "##":
            return []  # a later piece of the name
        words = pieces(part, at)
        longest = max(words, key=len)
        if len(longest) < LONG or any(map(known.COULD_BE.match, words)) or known.ALLOCATES.search(longest):
            raise Unsure("its source pastes names together", (part.file, part.tokens[at].line))
        return [other for name in self.source.named if fits(name, words) for other in self.source.named[name]]

    def _defined(self, part: Part) -> list[Part]:
        others = self.source.named[part.name]
        if all(one.kind == "declared" for one in others):
            raise Unsure(
                f"its source calls {part.name}, which it does not define", (part.file, part.tokens[0].line)
            )
        return []

    def _names_around(self, part: Part) -> set[str]:
        """Return the names declared in a definition, or in its class."""
        names = declared(part.tokens) | set(part.parameters)
        names |= bound(part.tokens, lambda name: self.source.named.get(name, ()))
        if part.owner:
            for one in self.source.named.get(part.owner, []):
                if one.owner == part.owner or one.kind == "class":
                    names |= self.source.declared_in(one)
        return names

    def _string(self, part: Part, one: Token) -> None:
        word = one.text.strip('"')
        if known.FOREIGN.match(word) and not known.is_known(word):
            raise Unsure(f"its source asks for {word}", (part.file, one.line))

    def _name(self, part: Part, at: int, names: set[str]) -> list[Part]:
        one, where = part.tokens[at], (part.file, part.tokens[at].line)
        name, spaces = one.text, self._spaces(part.tokens, at)
        if name in known.KEYWORDS or spaces[:1] == ["std"] or spaces[:2] == ["cuda", "std"]:
            return []  # C++'s own library takes no GPU memory
        own = self.source.named.get(name, [])
        before = part.tokens[at - 1].text if at else ""
        if before in (".", "->"):
            own = [other for other in own if other.is_member]
        after = part.tokens[at + 1].text if at + 1 < len(part.tokens) else ""
        if spaces and spaces[0] in known.SPACES and not (own and spaces[0] in self.source.spaces):
            return self._foreign(spaces, name, where)
        is_variable = after != "(" and (name in names or before in (".", "->"))
        if known.ALLOCATES.search(name) and not own and (not is_variable or known.FOREIGN.match(name)):
            raise Unsure("its source allocates", where)
        if own:
            return own
        if known.FOREIGN.match(name) and not known.is_known(name):
            raise Unsure(f"its source names {name}, of which nothing is known", where)
        if spaces and spaces[-1] not in self.source.spaces and spaces[-1] not in known.SPACES:
            return []  # of a class that is looked at where it is named
        is_space = after == "::" and (name in known.SPACES or name == "std" or name in self.source.renamed)
        if name in names or before in (".", "->") or is_space or known.is_known(name):
            return []
        if name in self.source.spaces or name in self.source.build.definitions:
            return []
        if makers := self.source.makers(name):
            return makers
        if part.kind == "macro":
            self._open.append((name, where))
            return []
        raise Unsure(f"its source names {name}, of which nothing is known", where)

    def _spaces(self, tokens: Sequence[Token], at: int) -> list[str]:
        """Return the names before a name, with renamed namespaces resolved."""
        found = qualified(tokens, at)
        for _ in self.source.renamed:
            if not found or found[0] not in self.source.renamed:
                break
            found = [*self.source.renamed[found[0]], *found[1:]]
        return found

    def _foreign(self, spaces: Sequence[str], name: str, where: Where) -> list[Part]:
        allowed = known.SPACES.get(spaces[-1])
        if allowed is None or name not in allowed:
            if known.ALLOCATES.search(name):
                raise Unsure("its source allocates", where)
            raise Unsure(f"its source names {'::'.join(spaces)}::{name}, of which nothing is known", where)
        return []
