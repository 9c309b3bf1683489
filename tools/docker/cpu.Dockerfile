# bulkinfer on processors. In the folder of the checkout:
#
#   docker build --file tools/docker/cpu.Dockerfile --tag bulkinfer .
#   docker run --rm --volume "$PWD:/work" --user "$(id -u):$(id -g)" bulkinfer infer_launch photos --model_name efficientnet_lite0
#
# EXTRAS: `openvino,zoo` makes networks too and takes 6 GB more, most of it torch; `openvino` runs networks that are in models/.
FROM python:3.11-slim
ARG EXTRAS=openvino
COPY pyproject.toml README.md LICENSE /src/
COPY inference /src/inference
COPY tools/constraints.txt /src/tools/constraints.txt
RUN pip install --no-cache-dir --constraint /src/tools/constraints.txt "/src[${EXTRAS}]" && rm -r /src
WORKDIR /work
ENTRYPOINT ["bulkinfer"]
