/** `if-match` of a change, which names the version that it is based on. */
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { headerOf, type AppContext } from "./app-env.ts";

export const ifMatchPattern = /^\s*(?:\*|(?:W\/)?"?([1-9]\d{0,14})"?)\s*$/;

/**
 * @param given in the body; both may be there where they agree
 * @throws GatewayError `invalid_request`
 */
export function readIfMatch(c: AppContext, given: number | undefined, kind: string): number | undefined {
  const header = headerOf(c, "if-match");
  if (header === undefined || header.trim() === "*") return given;
  const version = Number(ifMatchPattern.exec(header)?.[1]);
  if (version > 0 && (given === undefined || given === version)) return version;
  throw new GatewayError(
    "invalid_request",
    `'if-match' must be the \`etag\` of the ${kind}, and agree with 'version'.`,
    {
      param: "if-match",
    },
  );
}
