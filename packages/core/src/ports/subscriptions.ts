/** Persistence of subscriptions and of who holds them. Rules as in repos.ts. Contract: test/contract/subscriptions-repo.ts. */
import type {
  FailedMessage,
  HolderReport,
  MessageSubscription,
  NewSubscription,
  SubscriptionChange,
  SubscriptionHolder,
} from "../subscriptions/subscription.ts";
import type { Page, PageRequest, UnreadableItem } from "./page.ts";

export interface Holding {
  readonly instance: string;
  readonly node: string;
  readonly connectionId: string;
  readonly leaseMs: number;
  /** Those that it may hold; `exclusive` ones only where nobody else does. */
  readonly wanted: readonly { readonly id: string; readonly exclusive: boolean }[];
  readonly reports: readonly HolderReport[];
}

/** A message that is about to become a call. */
export interface MessageKey {
  readonly subscription: string;
  /** Its calls have it as their idempotency key. */
  readonly key: string;
  readonly instance: string;
  /** Messages of one lane become calls one after the other; null: in none. */
  readonly lane: string | null;
}

export interface Beginning {
  readonly subscription: MessageSubscription;
  readonly configVersion: number;
  /** This process of a node holds it. */
  readonly isHolder: boolean;
  /** The call that the message became before. */
  readonly callId: string | null;
  /** Calls of the subscription that have not ended. */
  readonly openCalls: number;
  /** The call before it in its lane has ended. */
  readonly isNext: boolean;
  readonly failed: FailedMessage | null;
}

export interface Failure {
  /** Of its row, where there is none yet. */
  readonly id: string;
  readonly subscription: string;
  readonly key: string;
  readonly messageId: string | null;
  readonly code: string;
  readonly message: string;
  /** With this attempt it is dead. */
  readonly maxAttempts: number;
}

export interface SubscriptionRepo {
  /** @throws GatewayError `conflict` (param `name`) for a name that is taken, or too many subscriptions */
  create(tenant: string, subscription: NewSubscription): Promise<MessageSubscription>;
  /**
   * Raises the version. Undefined: no such subscription.
   * @throws GatewayError `version_conflict` where it has another version than expected
   */
  update(
    tenant: string,
    id: string,
    change: SubscriptionChange,
    expectedVersion?: number,
  ): Promise<MessageSubscription | undefined>;
  get(tenant: string, id: string): Promise<MessageSubscription | undefined>;
  list(tenant: string, page: PageRequest): Promise<Page<MessageSubscription>>;
  /** With all that is known of its messages; calls stay. */
  delete(tenant: string, id: string): Promise<boolean>;
  /** All of a tenant, disabled ones too, and the version of its configuration. */
  all(tenant: string): Promise<
    | {
        readonly subscriptions: readonly MessageSubscription[];
        readonly unreadable: readonly UnreadableItem[];
        readonly configVersion: number;
      }
    | undefined
  >;
  /** Takes and extends leases, lets go of what is not wanted, and adds up what is reported. Returns the ids that it holds. */
  hold(tenant: string, holding: Holding): Promise<readonly string[]>;
  /** Lets go of everything that this process of a node holds. */
  release(tenant: string, instance: string): Promise<void>;
  holders(tenant: string, id: string): Promise<readonly SubscriptionHolder[]>;
  /** All that decides about a message. Undefined: no such subscription. Doing it again changes nothing. */
  begin(tenant: string, message: MessageKey): Promise<Beginning | undefined>;
  /** Counts an attempt of which no call could be made. */
  fail(tenant: string, failure: Failure): Promise<FailedMessage>;
  /** It became a call after all. */
  recover(tenant: string, subscription: string, key: string): Promise<void>;
  failed(tenant: string, subscription: string, page: PageRequest): Promise<Page<FailedMessage>>;
  /** Of all tenants: what is past its time; at most `limit` of each kind. Gives the number of the most numerous. */
  expire(limit: number): Promise<number>;
}
