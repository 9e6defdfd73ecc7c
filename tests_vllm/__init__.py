"""Tests with vLLM, in an environment that are separate: `make test-vllm`."""
