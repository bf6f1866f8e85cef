/** Counts and times what happens. Adapters: Prometheus text for a server, embedded metrics in the log for functions. */
import type { Labels, MetricName } from "../metrics/catalog.ts";

export interface Metrics {
  count(name: MetricName, labels: Labels, by?: number): void;
  /** Seconds. */
  observe(name: MetricName, labels: Labels, seconds: number): void;
}
