/** Arguments whose only truth is a zod schema: what models are told of them, and how they are read. */
import * as z from "zod";
import { GatewayError } from "../errors/gateway-error.ts";
import { isJsonObject, parseJson, type JsonObject } from "../json.ts";
import { withDelivery } from "./adapter.ts";
import { escapePointer } from "./json-schema/document.ts";

/** JSON Schema for models and listings. */
export function toParameters(input: z.ZodType): JsonObject {
  const schema = parseJson(JSON.stringify(z.toJSONSchema(input, { io: "input" })));
  if (!isJsonObject(schema) || schema["type"] !== "object") {
    throw new GatewayError("internal_error", "Arguments of tools must be zod objects.");
  }
  const { $schema: _dialect, ...parameters } = schema;
  return parameters;
}

/** @throws GatewayError `invalid_arguments` with a pointer for each fault; `not_sent` */
export function readArguments<Input extends z.ZodType>(input: Input, args: JsonObject): z.output<Input> {
  const parsed = input.safeParse(args);
  if (parsed.success) return parsed.data;
  const errors = parsed.error.issues.slice(0, 10).map((issue) => ({
    pointer: issue.path.map((key) => `/${escapePointer(String(key))}`).join(""),
    message: issue.message,
  }));
  const list = errors
    .map((error) => `${error.pointer === "" ? "arguments" : error.pointer}: ${error.message}`)
    .join("; ");
  throw withDelivery(
    new GatewayError("invalid_arguments", `The arguments do not fit: ${list}`, {
      param: "arguments",
      extra: { errors },
    }),
    "not_sent",
  );
}
