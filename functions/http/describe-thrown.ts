/**
 * What the log may say about an error that nobody expected: its kind and where it came from, never its
 * message, since messages of parsers and drivers quote what they were given.
 */
export interface ThrownFields {
  readonly error: string;
  readonly at: string;
  readonly [field: string]: string;
}

const mostFrames = 12;

/** @param thrown the cause is described where there is one */
export function describeThrown(thrown: unknown): ThrownFields {
  const origin = thrown instanceof Error && thrown.cause instanceof Error ? thrown.cause : thrown;
  if (!(origin instanceof Error)) return { error: typeof origin, at: "" };
  const code = "code" in origin && typeof origin.code === "string" ? ` ${origin.code}` : "";
  const frames = (origin.stack ?? "").split("\n").filter((line) => /^\s+at /.test(line));
  return {
    error: `${origin.name}${code}`,
    at: frames
      .slice(0, mostFrames)
      .map((line) => line.trim())
      .join("; "),
  };
}
