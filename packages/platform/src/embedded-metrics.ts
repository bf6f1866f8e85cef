/**
 * Metrics of a function: collected during an invocation and written as lines that CloudWatch turns into
 * metrics (Embedded Metric Format). Nothing is sent, so nothing can fail.
 */
import { metricCatalog, type Labels, type MetricName } from "@toolyard/core/metrics/catalog";
import type { Metrics } from "@toolyard/core/ports/metrics";

export interface EmbeddedMetrics extends Metrics {
  /** Writes what has come since the last time; before the function may be frozen. */
  flush(): void;
}

interface Series {
  readonly name: MetricName;
  readonly labels: Labels;
  /** One value a count, or one a measured time. */
  readonly values: number[];
}

const namespace = "Toolyard";
/** Values that one line may hold for a metric. */
const mostValues = 100;
/** What a dimension may be. One value that is none, as that of an empty label, and CloudWatch counts without any dimension. */
const dimensionValue = /^(?=.*\S)[\x20-\x7e]{1,1024}$/;

export function createEmbeddedMetrics(write: (line: string) => void): EmbeddedMetrics {
  const series = new Map<string, Series>();
  const seriesOf = (name: MetricName, labels: Labels): Series => {
    const key = JSON.stringify([name, labels]);
    const known = series.get(key) ?? { name, labels, values: [] };
    series.set(key, known);
    return known;
  };
  return {
    count(name, labels, by = 1) {
      const { values } = seriesOf(name, labels);
      values[0] = (values[0] ?? 0) + by;
    },
    observe(name, labels, seconds) {
      seriesOf(name, labels).values.push(seconds);
    },
    flush() {
      for (const one of series.values()) {
        for (let from = 0; from < one.values.length; from += mostValues) {
          write(toLine(one, one.values.slice(from, from + mostValues)));
        }
      }
      series.clear();
    },
  };
}

function toLine({ name, labels }: Series, values: readonly number[]): string {
  const { type } = metricCatalog[name];
  return JSON.stringify({
    _aws: {
      Timestamp: Date.now(),
      CloudWatchMetrics: [
        {
          Namespace: namespace,
          Dimensions: [Object.keys(labels).filter((label) => dimensionValue.test(labels[label] ?? ""))],
          Metrics: [{ Name: name, Unit: type === "counter" ? "Count" : "Seconds" }],
        },
      ],
    },
    ...labels,
    [name]: values.length === 1 ? values[0] : values,
  });
}
