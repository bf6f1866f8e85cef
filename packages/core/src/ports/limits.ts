/** As many as a tenant may have, whoever asks: repositories refuse one more, and whoever would add many counts first. */
export const mostOf = {
  agents: 500,
  flows: 500,
  /** Of one flow. */
  flowHooks: 20,
  plugins: 5_000,
  providers: 200,
  /** That still fire. */
  schedules: 10_000,
  services: 500,
  subscriptions: 200,
  /** Presets, world books and characters together: each is part of the tenant's snapshot. */
  tavernItems: 500,
  webhooks: 50,
} as const;
