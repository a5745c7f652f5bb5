"""Copy the folder lessons/ into the wheel as iocourse/lessons, which pyproject.toml cannot declare."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class WithLessons(build_py):
    """Build step that copies the students' files; an editable install finds them in the checkout."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            self._bring_lessons(Path(self.build_lib) / "iocourse" / "lessons")

    def _bring_lessons(self, target: Path) -> None:
        shutil.rmtree(target, ignore_errors=True)  # from an earlier build, possibly with a deleted lesson
        target.mkdir()
        lessons = Path("lessons")
        for path in [path for kind in ("ipynb", "md", "py") for path in lessons.glob(f"*.{kind}")]:
            self.copy_file(str(path), str(target / path.name))


setup(cmdclass={"build_py": WithLessons})
