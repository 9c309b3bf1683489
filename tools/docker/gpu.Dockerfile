# bulkinfer on NVIDIA GPUs: the libraries of CUDA and cuDNN come as Python packages. In the folder of the checkout:
#
#   docker build --file tools/docker/gpu.Dockerfile --tag bulkinfer-gpu .
#   docker run --rm --gpus all --volume "$PWD:/work" --user "$(id -u):$(id -g)" bulkinfer-gpu infer_launch photos --device cuda
#
# The host needs the NVIDIA driver and its container toolkit. EXTRAS: `gpu,zoo` makes networks too.
FROM python:3.11-slim
ARG EXTRAS=gpu
COPY pyproject.toml README.md LICENSE /src/
COPY inference /src/inference
COPY tools/constraints.txt /src/tools/constraints.txt
RUN pip install --no-cache-dir --constraint /src/tools/constraints.txt "/src[${EXTRAS}]" && rm -r /src
WORKDIR /work
ENTRYPOINT ["bulkinfer"]
