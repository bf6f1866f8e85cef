/**
 * Who presents this request: an API key, a token of a trusted issuer, or the operator. Keys are only
 * taken apart here and proven by the `admit` batch; tokens and the operator's key are proven here
 * (design "Tenants, callers, secrets").
 */
import { timingSafeEqual } from "node:crypto";
import { GatewayError } from "../errors/gateway-error.ts";
import type { Principal } from "../ports/calls.ts";
import { hashApiKey, tenantOfApiKey } from "./api-key.ts";
import { scopes, type Caller } from "./caller.ts";
import { createTokenVerifier, looksLikeToken, type TokenDeps } from "./jwt.ts";

export interface AuthenticatorDeps extends TokenDeps {
  /** Hex SHA-256 of the operator's key. */
  readonly adminKeyHash: string;
  /** Tenant on which the operator acts where the request names none. */
  readonly defaultTenant?: string;
}

/** Reads a request header by its lower-case name. */
export type HeaderReader = (name: string) => string | undefined;

export interface Presented {
  readonly tenant: string;
  readonly principal: Principal;
  /** When the credentials run out, where they say it themselves; epoch milliseconds. */
  readonly until?: number;
}

export interface Authenticator {
  /**
   * @throws GatewayError `invalid_api_key`, `invalid_token`, `issuer_unavailable`, and
   * `tenant_required` where neither the credentials nor `x-toolyard-tenant` name one tenant
   */
  presentCaller(header: HeaderReader): Presented | Promise<Presented>;
  /** Does the request carry the operator's key? Needs no tenant. */
  isOperator(header: HeaderReader): boolean;
}

/** Names the tenant where the credentials do not. */
const tenantHeader = "x-toolyard-tenant";

export const operatorCaller: Caller = { kind: "operator", id: "operator", role: "operator", scopes, tools: null };

export function createAuthenticator(deps: AuthenticatorDeps): Authenticator {
  const verifyToken = createTokenVerifier(deps);
  const adminHash = Buffer.from(deps.adminKeyHash, "hex");
  const isOperatorHash = (hex: string): boolean => {
    const hash = Buffer.from(hex, "hex");
    return hash.length === adminHash.length && timingSafeEqual(hash, adminHash);
  };
  const presentToken = async (token: string, named: string | undefined): Promise<Presented> => {
    const { tenant, caller, until } = await verifyToken(token, named);
    return { tenant, principal: { kind: "known", caller }, ...(until === undefined ? {} : { until }) };
  };
  return {
    isOperator(header) {
      const credential = readCredential(header);
      return credential !== undefined && isOperatorHash(hashApiKey(credential));
    },
    presentCaller(header) {
      const credential = readCredential(header);
      if (credential === undefined) {
        throw new GatewayError("invalid_api_key", "No API key was sent; add 'Authorization: Bearer <key>'.", {
          param: "authorization",
        });
      }
      const named = header(tenantHeader);
      const tenant = tenantOfApiKey(credential);
      const hash = hashApiKey(credential);
      if (isOperatorHash(hash)) return presentOperator(named ?? deps.defaultTenant);
      if (tenant !== undefined) {
        if (named !== undefined && named !== tenant) throw otherTenant();
        return { tenant, principal: { kind: "key", hash } };
      }
      if (looksLikeToken(credential)) return presentToken(credential, named);
      throw new GatewayError(
        "invalid_api_key",
        "The credential is neither an API key (ty_<tenant>_<secret>) nor a JWT; check that it was copied whole.",
        { param: "authorization" },
      );
    },
  };
}

function presentOperator(tenant: string | undefined): Presented {
  if (tenant === undefined) {
    throw new GatewayError("tenant_required", `Name the tenant to act on in the header '${tenantHeader}'.`, {
      param: tenantHeader,
    });
  }
  return { tenant, principal: { kind: "known", caller: operatorCaller } };
}

function otherTenant(): GatewayError {
  return new GatewayError("invalid_api_key", `The header '${tenantHeader}' names another tenant than the API key.`, {
    param: tenantHeader,
  });
}

/** `Authorization: Bearer …`, else `x-api-key`. Another Authorization scheme is an error that says so. */
function readCredential(header: HeaderReader): string | undefined {
  const authorization = header("authorization");
  if (authorization === undefined || authorization.trim() === "") return header("x-api-key")?.trim() || undefined;
  const credential = /^bearer +(\S+)\s*$/i.exec(authorization)?.[1];
  if (credential === undefined) {
    throw new GatewayError("invalid_api_key", "The Authorization header must be 'Bearer <key>'.", {
      param: "authorization",
    });
  }
  return credential;
}
