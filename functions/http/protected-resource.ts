/**
 * Where clients of `/mcp` learn how to get in (RFC 9728): the address of the document that a refusal names.
 */
import { scopeSchema } from "@toolyard/core/callers/caller";
import type { GatewayError } from "@toolyard/core/errors/gateway-error";

export const metadataPath = "/.well-known/oauth-protected-resource";
export const mcpPath = "/mcp";

export function isMcpPath(path: string): boolean {
  return path === mcpPath || path.startsWith(`${mcpPath}/`);
}

interface RefusedRequest {
  readonly publicUrl: string;
  readonly path: string;
  /** As the query names it. */
  readonly tenant: string | undefined;
}

/** The challenge of a refusal that other credentials could turn around; undefined: none, or not of these routes. */
export function challengeFor({ code, spec, details }: GatewayError, request: RefusedRequest): string | undefined {
  const { publicUrl, path, tenant } = request;
  if (!isMcpPath(path)) return undefined;
  const named = tenant !== undefined && /^[\w-]{1,64}$/.test(tenant) ? `?tenant=${tenant}` : "";
  const metadata = `resource_metadata="${publicUrl}${metadataPath}${mcpPath}${named}"`;
  if (spec.http === 401) {
    const error = code === "invalid_token" ? ', error="invalid_token"' : "";
    return `Bearer realm="toolyard"${error}, scope="tools", ${metadata}`;
  }
  const scope = scopeSchema.safeParse(details.param);
  if (code !== "permission_denied" || !scope.success) return undefined;
  return `Bearer realm="toolyard", error="insufficient_scope", scope="${scope.data}", ${metadata}`;
}
