/**
 * Files of this machine for tools that are given their addresses (VCP-16): of the directories that the operator has
 * named, and no others, wherever a link may lead.
 */
import { createHash } from "node:crypto";
import { open, realpath } from "node:fs/promises";
import { extname } from "node:path";
import { pathToFileURL } from "node:url";
import type { JsonValue } from "@toolyard/core/json";
import { longestFile, type NodeTool } from "@toolyard/core/nodes/node";
import { isWithin, pathOfFileUrl } from "@toolyard/core/vcp/files/file-url";
import { ended, type Executed, type Executor } from "./executor.ts";

const timeoutMs = 60_000;

const mediaTypes: Readonly<Record<string, string>> = {
  ".png": "image/png",
  ".jpg": "image/jpeg",
  ".jpeg": "image/jpeg",
  ".gif": "image/gif",
  ".webp": "image/webp",
  ".svg": "image/svg+xml",
  ".mp3": "audio/mpeg",
  ".wav": "audio/wav",
  ".mp4": "video/mp4",
  ".pdf": "application/pdf",
  ".json": "application/json",
  ".txt": "text/plain",
  ".md": "text/markdown",
  ".csv": "text/csv",
  ".html": "text/html",
};

/** What the gateway is told: it asks for nothing else, and would be refused. Other nodes have other files. */
export function filesOffer(node: string, directories: readonly string[]): NodeTool {
  return {
    name: `files_${createHash("sha256").update(node, "utf8").digest("hex").slice(0, 16)}`,
    description: "Files of this node, for tools that are given their addresses.",
    parameters: { type: "object" },
    effect: "read",
    sensitive: false,
    timeout_ms: timeoutMs,
    concurrency: 4,
    kind: "files",
    directories: [...directories],
  };
}

export function createFileExecutor(directories: readonly string[]): Executor {
  return {
    async execute({ arguments: args }) {
      const path = await readablePath(args["fileUrl"], directories);
      if (path === undefined)
        return ended("failed", "The file is in none of the directories that this node gives files of.");
      return readFile(path);
    },
  };
}

/** Where the file is, links followed; undefined: there is none, or none that may be read. */
export async function readablePath(
  url: JsonValue | undefined,
  directories: readonly string[],
): Promise<string | undefined> {
  if (!isWithin(url, directories)) return undefined;
  const path = typeof url === "string" ? pathOfFileUrl(url) : undefined;
  const real = path === undefined ? undefined : await realpath(path).catch(() => undefined);
  if (real === undefined) return undefined;
  const roots = await Promise.all(directories.map((directory) => realpath(directory).catch(() => directory)));
  return isWithin(pathToFileURL(real).href, roots) ? real : undefined;
}

async function readFile(path: string): Promise<Executed> {
  const file = await open(path, "r").catch(() => undefined);
  if (file === undefined) return ended("failed", "The file cannot be read.");
  try {
    const { size } = await file.stat();
    if (size > longestFile)
      return ended("failed", `The file has ${size} bytes, more than the ${longestFile} that are given.`);
    const fileData = (await file.readFile()).toString("base64");
    const mimeType = mediaTypes[extname(path).toLowerCase()] ?? "application/octet-stream";
    const output = JSON.stringify({ status: "success", fileData, mimeType });
    return { status: "completed", mediaType: "application/json", output };
  } catch {
    return ended("failed", "The file cannot be read.");
  } finally {
    await file.close();
  }
}
