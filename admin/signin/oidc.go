package signin

// Provider is an identity provider.
type Provider struct{}
