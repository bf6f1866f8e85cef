/**
 * Which paths may answer for up to 15 minutes. A test holds them against the routes that declare an event
 * stream. The rest is answered whole.
 */
export const longPaths = [
  "/v1/chat/completions",
  "/api/chat/completions",
  "/v1/chatvcp/completions",
  "/v1/images/generations",
  "/v1/group_chats",
  "/v1/knowledge/query",
  "/v1/run_workflow",
  // With what runs are told: their events are at the address of the run itself.
  "/v1/runs",
  "/mcp",
] as const;

/** What the REST API has to know beside them: API Gateway gives a path to the nearest resource that fits it. */
export interface PathTable {
  readonly long: readonly string[];
  readonly rest: readonly string[];
}

/**
 * Every long path and what lies under it, and for each of their parents the parent itself and what else
 * lies under it: whether the gateway would look further up is nowhere promised.
 */
export function toPathTable(paths: readonly string[]): PathTable {
  const parents = new Set(paths.flatMap(parentsOf));
  const below = (path: string): string => (path === "/" ? "/{proxy+}" : `${path}/{proxy+}`);
  return {
    long: paths.flatMap((path) => [path, below(path)]),
    rest: [...parents].sort().flatMap((path) => [path, below(path)]),
  };
}

function parentsOf(path: string): readonly string[] {
  const parts = path.split("/").slice(1, -1);
  return ["/", ...parts.map((_, at) => `/${parts.slice(0, at + 1).join("/")}`)];
}
