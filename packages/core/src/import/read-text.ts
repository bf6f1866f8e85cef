/** Text of an OpenAPI document or a part of one: JSON, else YAML. */
import { GatewayError } from "../errors/gateway-error.ts";
import { toToldName } from "../errors/schema-problems.ts";
import { repeatedNames, type JsonValue } from "../json.ts";
import { importLimits } from "./limits.ts";
import { cutText } from "./text.ts";

/** @throws GatewayError `invalid_request` with `param`, saying where the text stops making sense */
export async function readDocumentText(text: string, param: string): Promise<JsonValue> {
  const trimmed = text.replace(/^\uFEFF/, "").trimStart();
  if (trimmed === "") throw invalid(param, "is empty");
  if (!trimmed.startsWith("{")) return readYamlText(trimmed, param);
  let value: JsonValue;
  try {
    value = JSON.parse(trimmed) as JsonValue;
  } catch (error) {
    // A brace may also begin YAML in its flow style.
    return readYamlText(trimmed, param).catch(() => {
      throw invalid(param, `is neither JSON (${reasonOf(error)}) nor YAML`);
    });
  }
  // Of YAML its own reader does.
  refuseRepeats(trimmed, param);
  return value;
}

/** Of an operation that is described twice, the first would be lost without a word. */
function refuseRepeats(json: string, param: string): void {
  const [path] = repeatedNames(json);
  if (path === undefined) return;
  const place = cutText(path.map(toToldName).join("."), 1_000);
  throw invalid(param, `says '${place}' twice in one object, and one of the two would be lost; leave one of them out`);
}

async function readYamlText(text: string, param: string): Promise<JsonValue> {
  if (Buffer.byteLength(text, "utf8") > importLimits.yamlBytes) {
    throw invalid(param, `is YAML of more than ${importLimits.yamlBytes} bytes; convert it to JSON first`);
  }
  try {
    // Most processes never read YAML.
    const { readYaml } = await import("./read-yaml.ts");
    return await readYaml(text);
  } catch (error) {
    throw invalid(param, `cannot be read as YAML (${reasonOf(error)})`);
  }
}

function reasonOf(error: unknown): string {
  const text = error instanceof Error ? error.message : "unreadable";
  return cutText(text.split("\n", 1)[0] ?? "", 300);
}

function invalid(param: string, problem: string): GatewayError {
  return new GatewayError("invalid_request", `'${param}' ${problem}.`, { param });
}
