/**
 * Metrics of a server process, as Prometheus reads them. Requests only add to numbers of our own, found by
 * one text; the client library is given them when somebody reads, since its way to a labelled series costs
 * several times as much.
 */
import { metricCatalog, type Labels, type MetricName } from "@toolyard/core/metrics/catalog";
import type { Metrics } from "@toolyard/core/ports/metrics";
import { Counter, Histogram, Registry } from "prom-client";

export interface PrometheusMetrics extends Metrics {
  /** In the text format, version 0.0.4. */
  text(): Promise<string>;
}

/** Seconds, from a local tool to a long chat. */
const buckets = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300];

/** Observations that wait for a reader; more of them are passed on at once. */
const mostWaiting = 1_000;

/** What happened to one series since it was last passed on. */
interface Series {
  readonly name: MetricName;
  readonly labels: Labels;
  count: number;
  readonly seconds: number[];
}

export function createPrometheusMetrics(): PrometheusMetrics {
  const registry = new Registry();
  const counters = new Map<MetricName, Counter>();
  const histograms = new Map<MetricName, Histogram>();
  for (const [name, { type, help, labels }] of Object.entries(metricCatalog)) {
    const options = { name, help, labelNames: [...labels], registers: [registry] };
    // The keys of the catalogue are its names.
    const key = name as MetricName;
    if (type === "counter") counters.set(key, new Counter(options));
    else histograms.set(key, new Histogram({ ...options, buckets }));
  }
  const all = new Map<string, Series>();
  const seriesOf = (name: MetricName, labels: Labels): Series => {
    let key: string = name;
    for (const label in labels) key += `\n${labels[label]}`;
    let series = all.get(key);
    if (series === undefined) all.set(key, (series = { name, labels, count: 0, seconds: [] }));
    return series;
  };
  const pass = (series: Series): void => {
    const { name, labels, count, seconds } = series;
    if (count > 0) counters.get(name)?.inc(labels, count);
    series.count = 0;
    for (const one of seconds.splice(0)) histograms.get(name)?.observe(labels, one);
  };
  return {
    count(name, labels, by = 1) {
      seriesOf(name, labels).count += by;
    },
    observe(name, labels, seconds) {
      const series = seriesOf(name, labels);
      series.seconds.push(seconds);
      if (series.seconds.length >= mostWaiting) pass(series);
    },
    text() {
      for (const series of all.values()) pass(series);
      return registry.metrics();
    },
  };
}
