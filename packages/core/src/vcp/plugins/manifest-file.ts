/**
 * A manifest as it comes in, in a file. What is stored has been read so, and whoever reads that need not know how
 * schedules are written.
 */
import { isUtf8 } from "node:buffer";
import { checkCron } from "../../cron.ts";
import type { JsonValue } from "../../json.ts";
import { shorten } from "../../tools/json-schema/document.ts";
import { invalidManifest, manifestFileName, parseManifest, type VcpManifest } from "./manifest.ts";

/** Bytes of a manifest; the largest in the wild has some 60 KB. */
const largestManifest = 524_288;

/** @throws GatewayError `invalid_definition` naming the field: not JSON, or a plugin that could never run */
export function readManifest(file: Uint8Array | string): VcpManifest {
  const text = typeof file === "string" ? file : textOf(file);
  if (Buffer.byteLength(text, "utf8") > largestManifest) {
    throw invalidManifest(manifestFileName, `has more than ${largestManifest} bytes`);
  }
  // Editors on Windows begin files with a mark that JSON does not know.
  const manifest = parseManifest(jsonOf(text.replace(/^\uFEFF/, "")));
  const { refreshIntervalCron: cron } = manifest;
  if (cron !== undefined) checkCron(cron, "refreshIntervalCron");
  return manifest;
}

function jsonOf(text: string): JsonValue {
  try {
    return JSON.parse(text) as JsonValue;
  } catch (error) {
    const place = error instanceof Error ? ` (${shorten(error.message, 160)})` : "";
    throw invalidManifest(manifestFileName, `is not valid JSON${place}`);
  }
}

function textOf(bytes: Uint8Array): string {
  if (!isUtf8(bytes)) throw invalidManifest(manifestFileName, "is not UTF-8 text");
  return Buffer.from(bytes).toString("utf8");
}
