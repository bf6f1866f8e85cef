/** VCP plugins of tests: a manifest with little in it, its files, and how it comes to a tenant. */
import type { Client, Json } from "./gateway-client.ts";

export interface TestPlugin {
  readonly name: string;
  readonly manifest?: Readonly<Record<string, unknown>>;
  /** By path. */
  readonly files?: Readonly<Record<string, string>>;
}

/** A synchronous plugin; fields that are given replace its own. */
export function vcpManifest({ name, manifest }: TestPlugin): Json {
  return {
    name,
    displayName: name,
    version: "1.0.0",
    description: `${name} of a test.`,
    pluginType: "synchronous",
    entryPoint: { command: "sh plugin.sh" },
    communication: { protocol: "stdio", timeout: 10_000 },
    ...manifest,
  };
}

/** @returns the line of the answer that tells of this plugin */
export async function importVcp(client: Client, plugin: TestPlugin): Promise<Json> {
  const files = Object.entries(plugin.files ?? {}).map(([path, text]) => ({ path, text }));
  const answer = await client.post("/v1/plugins/import", { vcp: { manifest: vcpManifest(plugin), files } });
  return answer.operations[0];
}

/** A plugin that prints this text, whatever it is asked. */
export function printing(name: string, stdout: string): TestPlugin {
  return { name, files: { "plugin.sh": "cat >/dev/null; cat answer.txt", "answer.txt": stdout } };
}
