/** The samplers that OpenTelemetry's SDK specification names (`OTEL_TRACES_SAMPLER`). */
import type { SamplerName, SamplerOptions } from "./settings.ts";

/** @param parentSampled undefined: nothing before us has decided */
export type Sampler = (traceId: string, parentSampled: boolean | undefined) => boolean;

export function createSampler({ name, ratio }: SamplerOptions): Sampler {
  const root = rootSampler(name, ratio);
  if (!name.startsWith("parentbased_")) return root;
  return (traceId, parentSampled) => parentSampled ?? root(traceId);
}

function rootSampler(name: SamplerName, ratio: number): (traceId: string) => boolean {
  if (name.endsWith("always_on")) return () => true;
  if (name.endsWith("always_off")) return () => false;
  // The random part of a trace id is its end; the highest values are taken, as by everybody who follows
  // W3C's second version, so that those who sample a trace independently agree.
  const threshold = (1 - ratio) * 2 ** 52;
  return (traceId) => Number.parseInt(traceId.slice(-13), 16) >= threshold;
}
