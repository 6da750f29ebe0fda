# docker build -t reclaimnet . && docker run --rm --privileged -v "$PWD/out:/work/out" reclaimnet
# plays the demo; its page and figures lie in out/demo afterwards. Privileged: the campus makes namespaces and loads BPF programs.
# docs/scripts.md says more.
FROM debian:bookworm-slim

WORKDIR /work
# what changes rarely comes first: packages, then what the project needs, then the project
COPY setup-apt.sh .
RUN ./setup-apt.sh && rm -rf /var/lib/apt/lists/*
COPY . .
RUN /usr/bin/python3 -m venv --system-site-packages .venv
RUN .venv/bin/pip install --no-cache-dir --editable '.[analysis,dask,live,web]'
RUN .venv/bin/python -m bpf.build
RUN .venv/bin/python -m controller.warm_up

ENV PATH=/work/.venv/bin:$PATH
ENTRYPOINT ["reclaimnet"]
CMD ["demo", "--out", "out/demo"]
