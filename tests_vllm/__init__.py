"""Tests with vLLM, in an environment of their own: `make test-vllm`."""
