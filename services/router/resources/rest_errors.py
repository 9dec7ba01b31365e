"""The script that gives failed REST calls their protocol's body: `{"error": "<text>"}`, or OpenAI's object.

A worker's error reaches Envoy as a true gRPC status, so that retries and outlier detection see it. The transcoder sets
the HTTP status and leaves `grpc-status` and `grpc-message` as headers; the script turns the message into the body. For
OpenAI's clients a worker sends that body along; what comes without one is told by its status.
"""

from services.router.resources import edge

_SCRIPT = r"""
local ESCAPES = {['"'] = '\\"', ['\\'] = '\\\\'}

local function unpercent(text)
  return (text:gsub('%%(%x%x)', function(hex) return string.char(tonumber(hex, 16)) end))
end

-- Length of the well-formed UTF-8 character at i, or nil (RFC 3629, section 4).
local function utf8_length(text, i)
  local first = text:byte(i)
  local length, low, high
  if first < 0x80 then return 1
  elseif first >= 0xC2 and first <= 0xDF then length = 2
  elseif first >= 0xE0 and first <= 0xEF then length = 3
  elseif first >= 0xF0 and first <= 0xF4 then length = 4
  else return nil end
  low = first == 0xE0 and 0xA0 or first == 0xF0 and 0x90 or 0x80
  high = first == 0xED and 0x9F or first == 0xF4 and 0x8F or 0xBF
  for k = 1, length - 1 do
    local byte = text:byte(i + k)
    if byte == nil or byte < low or byte > high then return nil end
    low, high = 0x80, 0xBF
  end
  return length
end

local function quoted(text)
  local parts, i = {}, 1
  while i <= #text do
    local length = utf8_length(text, i)
    if length == nil then
      parts[#parts + 1] = '\\ufffd'
      i = i + 1
    else
      local character = text:sub(i, i + length - 1)
      if length == 1 and character:byte() < 0x20 then
        character = string.format('\\u%04x', character:byte())
      end
      parts[#parts + 1] = ESCAPES[character] or character
      i = i + length
    end
  end
  return '"' .. table.concat(parts) .. '"'
end

-- OpenAI's type and code by gRPC's status; all others are the server's fault.
local INVALID = {'"invalid_request_error"', 'null'}
local KINDS = {
  ['3'] = INVALID, ['9'] = INVALID, ['11'] = INVALID, ['12'] = INVALID,
  ['5'] = {'"invalid_request_error"', '"model_not_found"'},
  ['8'] = {'"rate_limit_error"', '"rate_limit_exceeded"'},
  ['4'] = {'"server_error"', '"timeout"'},
  ['14'] = {'"server_error"', '"unavailable"'},
}
local FAULT = {'"server_error"', 'null'}

local function openai_error(status, message)
  local kind = KINDS[status] or FAULT
  return '{"error": {"message": ' .. quoted(message) .. ', "type": ' .. kind[1]
    .. ', "param": null, "code": ' .. kind[2] .. '}}'
end

-- A gRPC client always gets HTTP status 200, so anything else under gRPC's content type is a REST caller's error.
function envoy_on_response(handle)
  local headers = handle:headers()
  if headers:get(':status') == '200' then return end
  local kind = headers:get('content-type') or ''
  local status = headers:get('grpc-status')
  local message = headers:get('grpc-message')
  local given = headers:get('ERROR_HEADER')
  headers:remove('ERROR_HEADER')
  headers:remove('grpc-status')
  headers:remove('grpc-message')
  headers:remove('grpc-status-details-bin')
  local is_openai = handle:streamInfo():dynamicMetadata():get('OPENAI_METADATA') ~= nil
  -- What Envoy answers itself has its body. The transcoder says that a stream without an answer is JSON.
  if is_openai and message == nil then return end
  if not is_openai and kind:sub(1, 16) ~= 'application/grpc' then return end
  message = unpercent(message or '')
  headers:replace('content-type', 'application/json')
  local text = '{"error": ' .. quoted(message) .. '}'
  if is_openai then text = given and unpercent(given) or openai_error(status, message) end
  local length = handle:body(true):setBytes(text)
  handle:headers():replace('content-length', tostring(length))
end
"""

SCRIPT = _SCRIPT.replace("ERROR_HEADER", edge.ERROR_HEADER).replace(
    "OPENAI_METADATA", edge.OPENAI_METADATA
)
