/** What can be chosen about traces, by the names that OpenTelemetry gives it; read without loading the rest. */
export const protocols = ["http/protobuf", "http/json"] as const;
export type OtlpProtocol = (typeof protocols)[number];

export const samplerNames = [
  "always_on",
  "always_off",
  "traceidratio",
  "parentbased_always_on",
  "parentbased_always_off",
  "parentbased_traceidratio",
] as const;
export type SamplerName = (typeof samplerNames)[number];

export interface SamplerOptions {
  readonly name: SamplerName;
  /** Share of the traces, 0 to 1; of `traceidratio` only. */
  readonly ratio: number;
}
