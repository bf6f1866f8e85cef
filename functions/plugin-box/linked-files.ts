/**
 * Files of a run that did not fit into its invocation: the box fetches them from the blob store by links that work
 * without a key. Addresses come with the links, since the code box's network has nobody to ask for a name.
 */
import { createEgress } from "@toolyard/core/blind/egress";
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { Egress } from "@toolyard/core/ports/egress";
import type { LinkedFile, PluginRun } from "@toolyard/core/ports/plugin-runner";
import { folderLimits } from "@toolyard/core/vcp/plugins/files";
import { readZip } from "@toolyard/core/zip";

export interface LinkedFilesOptions {
  /** CIDRs of private addresses that a blob store may have. */
  readonly allowCidrs: readonly string[];
}

type LaidFile = NonNullable<PluginRun["files"]>[number];

const fetchWithinMs = 50_000;
const atOnce = 8;

/** @throws GatewayError `tool_unreachable` naming the file that could not be had as it was announced */
export async function fetchLinkedFiles(
  linked: readonly LinkedFile[],
  { allowCidrs }: LinkedFilesOptions,
): Promise<readonly LaidFile[]> {
  const addresses = new Map(linked.map((file) => [new URL(file.url).hostname, file.addresses ?? []]));
  const egress = createEgress({
    allowCidrs,
    resolve: (host) => Promise.resolve((addresses.get(host) ?? []).map((address) => ({ address, family: 4 }))),
  });
  try {
    const files: LaidFile[] = [];
    for (let at = 0; at < linked.length; at += atOnce) {
      const fetched = await Promise.all(linked.slice(at, at + atOnce).map((file) => fetchFile(file, egress)));
      files.push(...fetched.flat());
    }
    return files;
  } finally {
    await egress.close();
  }
}

async function fetchFile(
  { path, isFolder, bytes, url, headers }: LinkedFile,
  egress: Egress,
): Promise<readonly LaidFile[]> {
  try {
    const answer = await egress.request({
      method: "GET",
      url,
      headers: Object.entries(headers),
      timeoutMs: fetchWithinMs,
      peer: "the blob store",
    });
    if (answer.status !== 200) throw new Error(`status ${answer.status}`);
    const body = Buffer.alloc(bytes);
    let at = 0;
    for await (const part of answer.body) {
      if (at + part.byteLength > bytes) throw new Error("more than was announced");
      body.set(part, at);
      at += part.byteLength;
    }
    if (at < bytes) throw new Error("less than was announced");
    return isFolder === true ? readZip(body, { ...folderLimits, param: path }) : [{ path, body }];
  } catch (cause) {
    const message = `The file "${path}" could not be fetched from the blob store; it may have been replaced meanwhile.`;
    throw new GatewayError("tool_unreachable", message, { cause });
  }
}
