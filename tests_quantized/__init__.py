"""Models whose weights bitsandbytes, torchao and optimum-quanto quantized on the CPU."""
