/** Rate-limit headers, in OpenAI's spelling and in that of the IETF draft (conventions "Headers out"). */
import type { AdmitResult } from "@toolyard/core/ports/calls";

const windowSeconds = 60;

/** Adds the headers to those of an answer. */
export function setRateLimitHeaders(headers: Record<string, string>, rate: AdmitResult["rate"]): void {
  const seconds = Math.max(0, Math.ceil(rate.resetMs / 1_000));
  headers["x-ratelimit-limit-requests"] = String(rate.limit);
  headers["x-ratelimit-remaining-requests"] = String(rate.remaining);
  headers["x-ratelimit-reset-requests"] = `${seconds}s`;
  headers["ratelimit-policy"] = `"requests";q=${rate.limit};w=${windowSeconds}`;
  headers["ratelimit"] = `"requests";r=${rate.remaining};t=${seconds}`;
}
