/** Metrics of a server process, as Prometheus reads them. */
import { metricCatalog, type Labels, type MetricName } from "@toolyard/core/metrics/catalog";
import type { Metrics } from "@toolyard/core/ports/metrics";
import type { Counter, Histogram } from "prom-client";

export interface PrometheusMetrics extends Metrics {
  /** In the text format, version 0.0.4. */
  text(): Promise<string>;
}

/** Seconds, from a local tool to a long chat. */
const buckets = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300];

export async function createPrometheusMetrics(): Promise<PrometheusMetrics> {
  const prometheus = await import("prom-client");
  const registry = new prometheus.Registry();
  const counters = new Map<MetricName, Counter>();
  const histograms = new Map<MetricName, Histogram>();
  for (const [name, { type, help, labels }] of Object.entries(metricCatalog)) {
    const options = { name, help, labelNames: [...labels], registers: [registry] };
    // The keys of the catalogue are its names.
    const key = name as MetricName;
    if (type === "counter") counters.set(key, new prometheus.Counter(options));
    else histograms.set(key, new prometheus.Histogram({ ...options, buckets }));
  }
  return {
    count: (name: MetricName, labels: Labels, by = 1) => counters.get(name)?.inc(labels, by),
    observe: (name: MetricName, labels: Labels, seconds: number) => histograms.get(name)?.observe(labels, seconds),
    text: () => registry.metrics(),
  };
}
