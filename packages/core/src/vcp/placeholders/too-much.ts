/** What a request's placeholders come to is bounded by setting `placeholder_chars_max`. */
import { GatewayError } from "../../errors/gateway-error.ts";

/** @param name in the braces: with it, it is too much */
export function tooMuch(name: string, reason: string): GatewayError {
  return new GatewayError(
    "placeholder_limit",
    `'{{${name}}}' ${reason}; change what it holds, see GET /v1/vcp/variables.`,
    { param: name },
  );
}

export function tooManyCharacters(name: string, limit: number): GatewayError {
  return tooMuch(
    name,
    `makes the placeholders of this request more than ${limit} characters, the setting 'placeholder_chars_max'`,
  );
}
