/**
 * Text of an OpenAPI document or a part of one: JSON, else YAML 1.2. YAML's tags run no code, its
 * aliases cannot multiply without an end, and what comes out is plain JSON.
 */
import { GatewayError } from "../errors/gateway-error.ts";
import type { JsonValue } from "../json.ts";
import { importLimits } from "./limits.ts";
import { cutText } from "./text.ts";

/** @throws GatewayError `invalid_request` with `param`, saying where the text stops making sense */
export async function readDocumentText(text: string, param: string): Promise<JsonValue> {
  const trimmed = text.replace(/^\uFEFF/, "").trimStart();
  if (trimmed === "") throw invalid(param, "is empty");
  if (!trimmed.startsWith("{")) return readYaml(trimmed, param);
  try {
    return JSON.parse(trimmed) as JsonValue;
  } catch (error) {
    // A brace may also begin YAML in its flow style.
    return readYaml(trimmed, param).catch(() => {
      throw invalid(param, `is neither JSON (${reasonOf(error)}) nor YAML`);
    });
  }
}

async function readYaml(text: string, param: string): Promise<JsonValue> {
  if (Buffer.byteLength(text, "utf8") > importLimits.yamlBytes) {
    throw invalid(param, `is YAML of more than ${importLimits.yamlBytes} bytes; convert it to JSON first`);
  }
  // Most processes never read YAML.
  const { parse } = await import("yaml");
  let value: unknown;
  try {
    value = parse(text, { schema: "core", merge: true, logLevel: "error", maxAliasCount: 1_000 });
  } catch (error) {
    throw invalid(param, `cannot be read as YAML (${reasonOf(error)})`);
  }
  return toJson(value, param);
}

/** Aliases may circle, and numbers may be none that JSON knows. */
function toJson(value: unknown, param: string): JsonValue {
  let count = 0;
  const waiting: unknown[] = [value];
  while (waiting.length > 0) {
    const next = waiting.pop();
    count += 1;
    if (count > importLimits.yamlValues)
      throw invalid(param, `has more than ${importLimits.yamlValues} values when its aliases are written out`);
    if (typeof next === "object" && next !== null) for (const part of Object.values(next)) waiting.push(part);
  }
  try {
    return JSON.parse(JSON.stringify(value)) as JsonValue;
  } catch {
    throw invalid(param, "is nested too deeply");
  }
}

function reasonOf(error: unknown): string {
  const text = error instanceof Error ? error.message : "unreadable";
  return cutText(text.split("\n", 1)[0] ?? "", 200);
}

function invalid(param: string, problem: string): GatewayError {
  return new GatewayError("invalid_request", `'${param}' ${problem}.`, { param });
}
