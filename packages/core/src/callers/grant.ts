/** Nobody hands out more than they have: what a new key or a trusted issuer may do is within what its maker may do. */
import { GatewayError } from "../errors/gateway-error.ts";
import { hasScope, type Caller, type Role, type Scope } from "./caller.ts";

export interface Grant {
  readonly role: Role;
  readonly scopes: readonly Scope[];
  /** Tool-name patterns; null: all enabled tools. */
  readonly tools: readonly string[] | null;
  /** null: none, or any. */
  readonly business_unit: string | null;
}

/** @throws GatewayError `permission_denied` naming the field */
export function requireMayGrant(granter: Caller, grant: Grant): void {
  if (granter.role === "operator") return;
  if (grant.role === "operator" || (grant.role === "admin" && granter.role !== "admin")) {
    throw denied("role", `The role '${grant.role}' is above that of the caller ('${granter.role}').`);
  }
  const missing = grant.scopes.find((scope) => !hasScope(granter, scope));
  if (missing !== undefined) throw denied("scopes", `The caller lacks the scope '${missing}' and cannot grant it.`);
  const { tools, businessUnit } = granter;
  if (businessUnit !== undefined && grant.business_unit !== businessUnit) {
    const message = `The caller belongs to the business unit '${businessUnit}' and can grant no other; name it.`;
    throw denied("business_unit", message);
  }
  if (tools === null) return;
  const wider = grant.tools === null ? "all tools" : grant.tools.find((pattern) => !tools.includes(pattern));
  if (wider !== undefined) {
    throw denied("tools", `The caller is bound to ${tools.join(", ")} and cannot grant '${wider}'; copy its patterns.`);
  }
}

/**
 * What later asks by itself does so with the scope `tools` and its maker's role, and is bound to no tools.
 * @throws GatewayError `permission_denied`
 */
export function requireMayRunTools(caller: Caller, made: string): void {
  const uses = `${made} may use every tool of its maker's role`;
  const refusal = !hasScope(caller, "tools")
    ? `The caller lacks the scope 'tools', and ${uses}; take a key that has it.`
    : caller.tools === null
      ? undefined
      : `The caller is bound to ${caller.tools.join(", ")}, and ${uses}; take a key that is bound to none ('tools': null).`;
  if (refusal !== undefined) throw new GatewayError("permission_denied", refusal);
}

function denied(param: string, message: string): GatewayError {
  return new GatewayError("permission_denied", message, { param });
}
