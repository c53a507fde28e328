"""Prompts of an exact number of tokens, the same for everybody who is measured."""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, datetime
from itertools import cycle, islice
from pathlib import Path

from ppsmoke.request import open_model
from ppsmoke.stub_model import is_stub_model

_STORY = (
    "Once upon a time there was a little village at the foot of a great mountain, and the people of the village kept "
    "bees, baked bread and told each other stories when the evenings grew long. One winter a stranger came over the "
    "pass with a box under his arm, and nobody could say what was in the box. "
)
_FILL = (" a", ".", "!", "\n")


class PromptMaker:
    """Makes prompts for one model, a path or a stub's name. Raises EnvironmentFault for a file that cannot serve."""

    def __init__(self, model: str) -> None:
        self._model = open_model(model, None if is_stub_model(model) else Path(model))

    @property
    def hidden_dim(self) -> int:
        return self._model.hidden_dim

    def count(self, text: str) -> int:
        return len(self.tokens(text))

    def tokens(self, text: str) -> list[int]:
        return self._model.encode_prompt(text, raw=True, system=None, now=datetime.now(UTC))

    def of_length(self, count: int) -> str:
        """A text of exactly `count` tokens: words of a story as long as they fit, then small pieces."""
        words = list(islice(cycle(_STORY.split()), count))
        fitting = bisect_right(range(1, count + 1), count, key=lambda n: self.count(" ".join(words[:n])))
        text = " ".join(words[: max(1, fitting)])
        while (reached := self.count(text)) < count:
            pieces = [piece for piece in _FILL if reached < self.count(text + piece) <= count]
            if not pieces:
                raise ValueError(f"no text of {count} tokens was found; the nearest has {reached}")
            text += pieces[0]
        return text
