"""For interpreters without CUDA: FlashInfer 0.6.11 to 0.6.18 may ask for a GPU's size when they are
imported, and what they are told is never used here."""

from types import SimpleNamespace

import torch

if not torch.cuda.is_available():
    _GPU = SimpleNamespace(name="none", major=9, minor=0, multi_processor_count=132, total_memory=0)
    torch.cuda.get_device_properties = lambda device=None: _GPU
    torch.cuda.get_device_capability = lambda device=None: (9, 0)
