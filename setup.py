"""What pyproject.toml cannot say: the folder lessons/ goes into the wheel, as iocourse/lessons."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class WithLessons(build_py):
    """Puts the students' notebooks beside the modules; an editable install finds them in the checkout."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            self._bring_lessons(Path(self.build_lib) / "iocourse" / "lessons")

    def _bring_lessons(self, target: Path) -> None:
        shutil.rmtree(target, ignore_errors=True)  # of an earlier build, perhaps with a lesson that has gone
        target.mkdir()
        for path in [*Path("lessons").glob("*.ipynb"), *Path("lessons").glob("*.md")]:
            self.copy_file(str(path), str(target / path.name))


setup(cmdclass={"build_py": WithLessons})
