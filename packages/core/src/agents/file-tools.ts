/** Who works with the files of a session: it begins with the chat then, although the request names none. */
import { namesTool } from "../callers/caller.ts";
import type { TenantConfig } from "../tenant-config.ts";
import type { Tool } from "../tools/tool.ts";
import { formatToolUri } from "../tools/uri.ts";

const resultReader = "read_result";

export function worksWithFiles({ kind, name }: Pick<Tool, "kind" | "name">): boolean {
  return kind === "NATIVE" && name !== resultReader;
}

const known = new WeakMap<TenantConfig, boolean>();

/** May any agent of the tenant? */
export function agentsWorkWithFiles(config: TenantConfig): boolean {
  let found = known.get(config);
  if (found === undefined) known.set(config, (found = look(config)));
  return found;
}

function look({ agents, settings }: TenantConfig): boolean {
  const natives = settings.native_tools
    .filter((name) => name !== resultReader)
    .map((name) => ({ name, uri: formatToolUri("native", name) }));
  return agents.some(
    ({ enabled, tools }) => enabled && tools.some((pattern) => natives.some((tool) => namesTool(pattern, tool))),
  );
}
