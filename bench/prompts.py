"""Prompts of an exact number of tokens, the same for everybody who is measured."""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, datetime
from itertools import cycle, islice
from pathlib import Path

from ppsmoke.request import open_model

_STORY = (
    "Once upon a time there was a little village at the foot of a great mountain, and the people of the village kept "
    "bees, baked bread and told each other stories when the evenings grew long. One winter a stranger came over the "
    "pass with a box under his arm, and nobody could say what was in the box. "
)


class PromptMaker:
    """Makes prompts for one model. Raises EnvironmentFault for a file that cannot serve."""

    def __init__(self, model: Path) -> None:
        self._model = open_model(str(model), model)

    @property
    def hidden_dim(self) -> int:
        return self._model.hidden_dim

    def count(self, text: str) -> int:
        return len(self.tokens(text))

    def tokens(self, text: str) -> list[int]:
        return self._model.encode_prompt(text, raw=True, system=None, now=datetime.now(UTC))

    def of_length(self, count: int) -> str:
        """A text of exactly `count` tokens: words of a story as long as they fit, then single letters."""
        words = list(islice(cycle(_STORY.split()), count))
        fitting = bisect_right(range(1, count + 1), count, key=lambda n: self.count(" ".join(words[:n])))
        text = " ".join(words[: max(1, fitting)])
        while self.count(text) < count:
            text += " a"
        if self.count(text) != count:
            raise ValueError(f"no text of {count} tokens was found; the nearest has {self.count(text)}")
        return text
