# An image for --image: machines that run it have nothing to install. Built by hand:
#
#   docker build -t USER/pp-smoke-run:0.1.0 . && docker push USER/pp-smoke-run:0.1.0
#   pp-smoke-run --vastai --image USER/pp-smoke-run:0.1.0 --image-gb 0.3
#
# `docker manifest inspect -v` shows the compressed size for --image-gb. The version inside must be that of the caller: the
# start script asks `pp-gpu-node --version`, and installs what it was told to where the answer is another one.

# Stage 1, build: the wheel of this checkout. What it takes to build one stays behind in this stage.
FROM python:3.12-slim-bookworm AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY ppsmoke ppsmoke
COPY worker worker
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

# Stage 2, the image: the same small base that machines have by default, with the wheel and what it needs. No CUDA: the
# host's runtime brings its driver's libraries in, of the version that fits its driver.
FROM python:3.12-slim-bookworm
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir /wheels/*.whl && rm -r /wheels && pp-gpu-node --version

# What a machine's runtime is asked for. No entry point: a machine is started with a script of its own for bash.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
CMD ["pp-gpu-node", "--help"]
