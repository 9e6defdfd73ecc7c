"""Tests with vLLM, in a separate environment: `make test-vllm`."""
