/** Persistence of variables. Rules as in repos.ts. Contract: test/contract/variables-repo.ts. */
import type { NewVariable, VariableChange, VariableEntry, VariableKind } from "../vcp/placeholders/variable.ts";
import type { Page, PageRequest } from "./page.ts";

export interface VariableText {
  readonly id: string;
  readonly hash: string;
  readonly content: string;
}

export interface VariableRepo {
  /**
   * Raises the config version.
   * @throws GatewayError `conflict` (param `name`) for a name that is taken, or too many variables
   */
  create(tenant: string, variable: NewVariable): Promise<VariableEntry>;
  /**
   * Puts or replaces each by kind and name, all or none; what is as it was stays, with its version. Raises the
   * config version where something changes; where nothing does, that is a second trip.
   * @throws GatewayError `conflict` for too many variables
   */
  putAll(tenant: string, variables: readonly NewVariable[]): Promise<void>;
  /**
   * Raises both versions. Undefined: there is none.
   * @throws GatewayError `version_conflict` where it has another version than expected
   */
  update(
    tenant: string,
    id: string,
    change: VariableChange,
    expectedVersion?: number,
  ): Promise<VariableEntry | undefined>;
  get(tenant: string, id: string): Promise<VariableEntry | undefined>;
  list(tenant: string, page: PageRequest & { readonly kind?: VariableKind }): Promise<Page<VariableEntry>>;
  /** Contents of those that are there, as they are now. */
  contents(tenant: string, ids: readonly string[]): Promise<readonly VariableText[]>;
  delete(tenant: string, id: string): Promise<boolean>;
}
