import { AuthenticationError, ConnectionError, MillraceError } from "@millrace/contract"
import { errors } from "@nats-io/transport-node"

/** What a failure to connect means; nothing was asked of the server yet, so the outcome is `rejected`. */
export function connectFailure(error: unknown, where: string): MillraceError {
  const text = error instanceof Error ? error.message : String(error)
  const cause = error
  if (isRefusedLogin(error)) {
    return new AuthenticationError(`the NATS server at ${where} does not take the user and password: ${text}`, {
      cause,
    })
  }
  if (isNotNats(error)) {
    return new MillraceError("protocol", `what listens at ${where} does not speak the NATS protocol: ${text}`, {
      cause,
      outcome: "rejected",
    })
  }
  if (isTls(error)) {
    return new ConnectionError(`the NATS server at ${where} wants TLS, which failed: ${text}`, {
      cause,
      retryable: false,
    })
  }
  return new ConnectionError(`cannot connect to a NATS server at ${where}: ${text || "the connection was closed"}`, {
    cause,
  })
}

/** Whether the server did not take the user and the password, or takes them no longer. */
export function isRefusedLogin(error: unknown): boolean {
  return error instanceof errors.AuthorizationError || error instanceof errors.UserAuthenticationExpiredError
}

/** The client speaks so of a greeting that is no INFO, or whose JSON is broken. */
function isNotNats(error: unknown): boolean {
  if (error instanceof SyntaxError || error instanceof errors.ProtocolError) return true
  return error instanceof Error && /unexpected response from server|protocol error|parse error/i.test(error.message)
}

function isTls(error: unknown): boolean {
  if (!(error instanceof Error)) return false
  const code = String((error as { code?: unknown }).code ?? "")
  return (
    /^(ERR_(TLS|SSL)|CERT_|DEPTH_ZERO|SELF_SIGNED|UNABLE_TO)|EPROTO/.test(code) ||
    /\b(tls|ssl|certificate)\b/i.test(error.message)
  )
}
