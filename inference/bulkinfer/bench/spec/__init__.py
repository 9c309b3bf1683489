"""bulkinfer bench --spec: benchmarks that a YAML file describes, run one after the other."""
