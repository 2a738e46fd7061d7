"""The words of a file, with the brackets that belong together."""

OPEN = {"(": ")", "[": "]", "{": "}"}


class Words:
    """The words of a file, in their order."""

    def __init__(self, words: list[str]) -> None:
        self.words = words

    def _word(self, at: int) -> str:
        return self.words[at] if at < len(self.words) else ""

    def _find(self, at: int, end: int, marks: str) -> int:
        while at < end and self.words[at] not in marks:
            at = self._matching(at) + 1 if self.words[at] in OPEN else at + 1
        return min(at, end)

    def _matching(self, at: int) -> int:
        close, opened, depth = OPEN[self.words[at]], self.words[at], 0
        for here in range(at, len(self.words)):
            if self.words[here] == opened:
                depth += 1
            elif self.words[here] == close:
                depth -= 1
                if not depth:
                    return here
        return len(self.words) - 1

    def _closing_angle(self, at: int, end: int) -> int:
        """Return the end of a template's list, or `at` if this is no list."""
        depth, here = 0, at
        while here < end:
            word = self.words[here]
            if word == "<":
                depth += 1
            elif word in (">", ">>>"):
                depth -= len(word)
                if depth <= 0:
                    return here
            elif word in (";", "{"):
                return at
            here = self._matching(here) + 1 if word in ("(", "[") else here + 1
        return at
