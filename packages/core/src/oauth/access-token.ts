/** Access tokens as tools ask for them. */
import type { CredentialContext } from "../blind/credential-resolver.ts";
import type { OAuthClient } from "./client.ts";

export interface AccessToken {
  readonly value: string;
  /** Counts the tokens of its grant. */
  readonly generation: number;
  /** It was there before it was asked for, so the back end may know better. */
  readonly cached: boolean;
}

export interface TokenOptions {
  readonly context: CredentialContext;
  /** URI of the tool, and what it is called in messages. */
  readonly tool: string;
  readonly toolName: string;
  /** Ends the wait, not the request that others wait for, too. */
  readonly signal: AbortSignal;
  /** The back end does not take this one: another is wanted. */
  readonly refused?: AccessToken | undefined;
}

export interface TokenSource {
  /**
   * @throws GatewayError `credential_missing` with `connect_url` where a user has still to give access;
   * `credential_invalid` naming the setting that the server refuses; `tool_timeout`, `tool_unreachable`,
   * `tool_failed` for a server that cannot be used. All before anything was sent to the tool.
   */
  accessToken(client: OAuthClient, options: TokenOptions): Promise<AccessToken>;
  /**
   * Has this user given access, as far as can be said without asking the server?
   * @throws GatewayError `credential_unreadable` naming the connection
   */
  isConnected(client: OAuthClient, context: CredentialContext): Promise<boolean>;
}
